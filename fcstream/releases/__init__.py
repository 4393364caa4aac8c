"""One file per thing released: from a window's view and a charge to an outcome on the lattice."""
