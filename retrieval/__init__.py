"""Retrieval: corpora, encoders, the FAISS index and its manifest, search. Knows nothing of judges."""
