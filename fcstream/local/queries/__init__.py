"""What an analyst may ask, and how answers of many devices become an estimate."""
