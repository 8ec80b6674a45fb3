"""Reading image files: probe the header, decode, orient, convert colours, reduce. Pure functions, no torch."""
