MADE = {}
