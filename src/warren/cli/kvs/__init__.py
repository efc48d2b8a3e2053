"""`warren kvs`: keys of the instance, read and changed."""
