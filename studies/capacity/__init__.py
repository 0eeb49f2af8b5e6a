"""How much load a deployment carries within its objectives, with how many replicas, and at what price."""
