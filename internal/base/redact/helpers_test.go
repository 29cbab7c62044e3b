package redact

// secret is what no output may show.
const secret = "s3cr3t-s3cr3t"
