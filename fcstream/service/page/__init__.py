"""The live page: what `[service] page` shows at ``/`` of the status server.

Here belongs what browsers get: documents about released windows and budgets, the stream of events that keeps them
fresh, and the page itself. It only reads: nothing that a browser sends changes anything. What a stream's service does
is in `fcstream.service`; pictures in files are drawn by `fcstream.plots`.

Files, top to bottom: `site` (paths, headers and events), `live` (what is known of all streams), `outlook` (what is left
of a budget), `history` (the last windows of each series), `views` (a release as the page draws it), and in ``assets``
the page: HTML, CSS and JavaScript as they are sent, without a build step.
"""
