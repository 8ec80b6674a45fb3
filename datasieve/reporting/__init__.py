"""Turning a report into what people and other programs read."""
