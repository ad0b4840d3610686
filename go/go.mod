module headstart/turbotls

go 1.19
