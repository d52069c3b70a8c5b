"""Keys, signatures, the Merkle tree over all events, export and offline verification."""
