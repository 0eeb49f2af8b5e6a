"""Real weights and their tokenizers: Hugging Face folders, GGUF files, packaged models."""
