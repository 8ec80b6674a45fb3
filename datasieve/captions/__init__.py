"""Captions as text: how they are written, what a text encoder reads of them, and what they say. No pixels, no torch."""
