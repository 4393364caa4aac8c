"""Webhooks: releases posted to a web server."""
