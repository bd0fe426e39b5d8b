"""The language of `data.keep`, the filter of samples."""
