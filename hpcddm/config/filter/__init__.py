"""The language of `data.filter`, the filter of samples."""
