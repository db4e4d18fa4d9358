module tube.test/compat

go 1.21

// The client's own module; toolchains.py replaces it with a checkout when the proxy has none.
require github.com/apache/inlong/inlong-tubemq/tubemq-client-twins/tubemq-client-go v0.0.0-20241206111749-1183e43b4425
