"""IR to IR, one file per pass; `pipeline.py` has the order, `rewriter.py` what they share."""
