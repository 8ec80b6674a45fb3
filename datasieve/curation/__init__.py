"""Choosing images from a report and exporting them as a set that trainers take as it is."""
