"""Measurements that print their targets beside the numbers. Each module is run by itself."""
