package kube

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// maxUnpackedChart bounds what a chart's archive unpacks to, in bytes. Helm bounds the content of its files, to
// loader.MaxDecompressedChartSize, and not their number, nor the headers of the archive.
const maxUnpackedChart = 128 << 20

// ReadChart reads a chart's archive, which is refused where a small one unpacks to a large one.
func ReadChart(archive []byte) (*chart.Chart, error) { return readChart(archive, maxUnpackedChart) }

func readChart(archive []byte, most int64) (*chart.Chart, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("it is no archive: %w", err)
	}
	n, err := io.Copy(io.Discard, io.LimitReader(unpacked, most+1))
	if err = errors.Join(err, unpacked.Close()); err != nil {
		return nil, fmt.Errorf("unpack it: %w", err)
	}
	if n > most {
		return nil, fmt.Errorf("it unpacks to more than %d bytes: it is refused", most)
	}
	return loader.LoadArchive(bytes.NewReader(archive))
}
