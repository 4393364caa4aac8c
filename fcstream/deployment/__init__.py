"""The report on a deployment: what a configuration promises, to whom, what it costs, and what nobody should expect.

Here belongs what stands in `fcstream report`, in words for people who never saw the project. It reads a configuration,
its plan, and if there is one a ledger; it reads no records, spends nothing and changes nothing. Every format shows the
same document.

Files: `facts` (collects numbers), `document` (what a report is made of), `report` (the document of some facts, section
by section), `promise`, `running`, `hazards` (the words of its sections), `html`, `markdown`, `registry_record` (the
three formats).
"""
