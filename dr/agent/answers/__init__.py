"""The gRPC methods of a site agent, with a module for each subject."""
