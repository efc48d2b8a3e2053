"""Commands about a whole cluster: started, stopped, examined, and its parts run alone."""
