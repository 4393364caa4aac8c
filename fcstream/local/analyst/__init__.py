"""The analyst's side over time: which questions were asked, what was learned, and what it cost the devices.

Here belong the record of a question's rounds and series of questions. How one estimate is made of answers is in
`fcstream.local.queries`.
"""
