"""Who carries out a part: `local` uses processes of this machine."""
