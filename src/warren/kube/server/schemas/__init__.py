"""What objects may be, and how they change: schemas, patches, apply and owners of fields. Pure."""
