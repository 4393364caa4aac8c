"""The analyst's side over time: which queries were asked, what they answered, and what they cost the devices.

Here belong series of queries, which share the devices' budgets, and the record of each query in a ledger. How replies
become one answer is in `fcstream.local.queries`.
"""
