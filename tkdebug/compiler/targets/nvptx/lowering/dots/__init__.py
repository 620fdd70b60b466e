"""Matrix products: mma.sync, wgmma, and FMA units."""
