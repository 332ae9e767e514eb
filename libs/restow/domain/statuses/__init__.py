"""What is written to objects of the API beside the session's (`restow.domain.session.statuses`): pure functions of the fold."""
