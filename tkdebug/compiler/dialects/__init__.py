"""What each op is called, is made of and means, by dialect: `tt.load` is `dialects.tt.Load`."""
