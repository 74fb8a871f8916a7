"""frontends/: files that come in. Each reader trusts nothing and copies no tensor."""
