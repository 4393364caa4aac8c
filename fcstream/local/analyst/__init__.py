"""The analyst's side: what was asked and learned, for good."""
