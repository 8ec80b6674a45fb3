"""Planning and running an audit."""
