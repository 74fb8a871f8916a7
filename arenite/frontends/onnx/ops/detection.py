"""NonMaxSuppression."""
