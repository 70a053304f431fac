"""Shows a site's locks to its operators: the admin's page of locks, and the panel of the debug toolbar."""
