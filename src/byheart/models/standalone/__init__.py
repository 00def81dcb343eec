"""Files that exports copy as they are: each a whole model that needs torch and safetensors only."""
