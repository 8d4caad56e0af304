# Read last: no job starts before every environment of the grid has been made once.
if workflow.is_main_process:
    try:
        ENVIRONMENTS.result()
    except ConfigError as error:
        refuse(error)
