"""What a site agent answers by gRPC, a module for each subject."""
