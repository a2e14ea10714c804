"""What CI needs to put real clients in front of the gateway and the gateway in front of other people's servers."""
