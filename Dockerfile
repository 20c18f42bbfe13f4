# The image for whoever has Docker: `docker build -t outbox-relay .`. scripts/image makes the same without it.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /build
COPY . .
RUN cargo rustc --locked --bin outbox-relay --release -- -C target-feature=+crt-static

FROM scratch
LABEL org.opencontainers.image.title="outbox-relay"
LABEL org.opencontainers.image.description="Delivers rows of a PostgreSQL outbox table to HTTP endpoints: at least once, in order per key, at the lowest cost to the database."
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.version="0.1.0"
COPY LICENSE /LICENSE
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /build/target/release/outbox-relay /outbox-relay
ENV MALLOC_MMAP_THRESHOLD_=131072
EXPOSE 9090/tcp
USER 65532:65532
ENTRYPOINT ["/outbox-relay"]
