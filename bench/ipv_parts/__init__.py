"""Parts of ``bench/ipv.py``: the shop at the device and in the cloud, over one broker."""
