"""What lies here is data: the scripts of exports are no tests, though pytest could import them."""

collect_ignore_glob = ["*"]
