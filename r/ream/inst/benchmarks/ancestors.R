# The four benchmarks that RISM was measured by, without and with large pages, in turns. `share` scales the sizes: 1 is the
# authors' own (some 3 GiB, and minutes).
#
#   Rscript -e 'source(system.file("benchmarks/ancestors.R", package = "ream")); print(ancestors())'

hilbert <- function(N) 1 / (matrix(1:N, N, N, byrow = TRUE) + 0:(N - 1))

ancestors <- function(share = 1, rounds = 3) {
  side <- function(n) max(8, round(n * sqrt(share)))
  pairs <- function(n) max(8, round(n * share))
  spectrum <- function(n) function() {
    x <- complex(real = seq_len(n) %% 7, imaginary = seq_len(n) %% 5)
    fft(fft(x), inverse = TRUE)
  }
  work <- list(
    "qr(hilbert(1000))" = function() qr(hilbert(side(1000))),
    "qr(hilbert(1024))" = function() qr(hilbert(side(1024))),
    "fft, 1e7 complex" = spectrum(pairs(1e7)),
    "fft, 2^24 complex" = spectrum(2^round(log2(2^24 * share))),
    "lm(y ~ x), 5000 x 10000" = function() {
      rows <- side(5000)
      x <- matrix(seq_len(rows * side(100)) %% 1009 + sin(seq_len(rows * side(100))), rows)
      y <- matrix(seq_len(rows * side(10000)) %% 997 / 997, rows)
      lm(y ~ x)
    }
  )
  before <- ream::ISM.status()
  on.exit(ream::ISM(before$status, before$minKB, before$maxKB))
  seconds <- function(on, run) {
    ream::ISM(on, 1024, 4194304)
    gc()
    system.time(run())[["elapsed"]]
  }
  median_of <- function(run) {
    times <- vapply(seq_len(rounds), function(round) c(seconds(FALSE, run), seconds(TRUE, run)), numeric(2))
    apply(times, 1, stats::median)
  }
  medians <- vapply(work, median_of, numeric(2))
  data.frame(without = medians[1, ], with = medians[2, ], row.names = names(work))
}
