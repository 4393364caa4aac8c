"""Centers and mixtures of clusters."""
