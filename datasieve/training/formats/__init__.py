"""Files in which embeddings and hypernetworks are exchanged: read widely, written narrowly (docs/training-files.md)."""
