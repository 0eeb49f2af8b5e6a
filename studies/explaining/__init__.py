"""Why a request was slow: where its time went, who stood in its way, and what one request did to all others."""
