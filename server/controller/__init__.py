"""The controller: decisions about topics, partitions and leaders (pure), and the queue that runs them."""
