"""The release service: answers a device's check with the news for the device, if any."""
