"""Training Textual Inversion embeddings and hypernetworks on an audited set, and the files they are exchanged in."""
