"""The HTTP service: routes, schemas, errors and admission around a judge."""
