"""tokenizer_json/: tokenizers of Hugging Face folders, run by their library in a child process."""
