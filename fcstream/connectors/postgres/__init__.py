"""PostgreSQL: releases as rows of a table."""
