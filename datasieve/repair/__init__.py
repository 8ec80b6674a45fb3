"""Repairs: a finding becomes an edit on a copy; originals are only read. Each says whether it loses anything."""
